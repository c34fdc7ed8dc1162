"""Connected pages: authentication, messages, subscriptions, and the updates sent to them."""
