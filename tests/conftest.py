"""What holds for all tests."""

import torch

torch.set_num_threads(1)  # the tensors of a test are tiny: a second thread would only wait for the first
