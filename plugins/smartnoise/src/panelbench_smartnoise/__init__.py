"""Marginal mechanisms of smartnoise-synth, in an environment of their own."""
