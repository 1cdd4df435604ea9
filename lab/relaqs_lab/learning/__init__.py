"""How MLF-RL is learned: MLF-H is imitated first, and then simulated jobs say what is better.

Only this makes weights, and only `torch_scoring.py` needs PyTorch. The policy that uses them is
`relaqs_lab.mlf_rl`.
"""
