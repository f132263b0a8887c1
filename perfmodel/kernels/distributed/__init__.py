"""Exchanges between the processes of torch.distributed: the group, and each collective with its check."""
