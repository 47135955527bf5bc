"""Webhook deliveries that start tasks or updates of pull requests."""
