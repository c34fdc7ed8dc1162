"""Inside compiled code: what `torch.compile` runs of a model, and a pass of its eager program beside it."""
