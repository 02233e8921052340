"""What holds for all tests."""

import os

import torch

torch.set_num_threads(1)  # the tensors of a test are tiny: a second thread would only wait for the first
os.environ["ACCELERATE_USE_CPU"] = "true"  # training is compared to the bit, which a GPU does not promise
