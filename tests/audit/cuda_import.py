"""Cannot be imported where there is no CUDA device."""

import torch

BUFFER = torch.zeros(4, device="cuda")
