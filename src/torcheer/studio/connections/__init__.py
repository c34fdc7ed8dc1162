"""Connected pages: authentication, their messages, their subscriptions, the updates sent to them."""
