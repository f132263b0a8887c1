"""Plots of a diagnosis: where the time goes, what changed between two diagnoses, and the run over time."""

from perfmodel.render.plots import plot
from perfmodel.render.plots.diagnosis.breakdown import against_plot, breakdown_plot

plot.register(breakdown_plot)
plot.register(against_plot)
