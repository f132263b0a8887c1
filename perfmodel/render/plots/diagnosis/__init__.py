"""Plots of diagnoses: the breakdown of one, the changes between two, the run over time, and on another machine."""

from perfmodel.render.plots import plot
from perfmodel.render.plots.diagnosis.breakdown import against_plot, breakdown_plot
from perfmodel.render.plots.diagnosis.projection import projected_job_plot, projection_plot

plot.register(breakdown_plot)
plot.register(against_plot)
plot.register(projection_plot)
plot.register(projected_job_plot)
