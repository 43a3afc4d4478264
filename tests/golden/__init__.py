"""Golden wire bytes: payloads that were saved or are sent by older versions must decode to the same tensors."""
