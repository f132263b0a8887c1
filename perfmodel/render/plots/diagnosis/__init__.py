"""Plots of diagnoses: the breakdown of one, the changes between two, and the run over time."""

from perfmodel.render.plots import plot
from perfmodel.render.plots.diagnosis.breakdown import against_plot, breakdown_plot

plot.register(breakdown_plot)
plot.register(against_plot)
