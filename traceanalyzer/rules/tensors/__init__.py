"""Rules about tensors: computed again, in full, unread, on copies or in a costlier order."""
