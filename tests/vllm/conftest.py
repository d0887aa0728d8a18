"""Tests of the vLLM loader's tracing and planning, which need torch but no vLLM. Those with a real vLLM are in real/."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for package in ("client/python", "client/vllm"):
    sys.path.insert(0, str(ROOT / package))
