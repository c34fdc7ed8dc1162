"""What the recorder treats apart: fused kernels, higher-order operators, generators, autograd, the dispatcher."""
