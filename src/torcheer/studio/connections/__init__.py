"""The pages that are connected: who may, what they say, what they are sent."""
