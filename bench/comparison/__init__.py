"""The parts of bench/compare.py. The front plans and collects; each backend is measured in a process of its own, by
worker.py, which uses timing.py, accuracy.py and memory.py. SPDX-License-Identifier: MIT"""
