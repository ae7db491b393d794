"""Mechanisms that estimate a state in real time from the reports of private sensors."""
