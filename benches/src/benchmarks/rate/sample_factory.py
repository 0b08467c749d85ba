"""Prints how many frames a second Sample Factory's own sampler plays, asked as its example of the sampling API asks."""

import sys
import time

from sample_factory.algo.sampling.simplified_sampling_api import SyncSamplingAPI
from sample_factory.algo.utils.env_info import obtain_env_info_in_a_separate_process
from sample_factory.algo.utils.rl_utils import samples_per_trajectory
from sf_examples.train_gym_env import parse_custom_args, register_custom_components

warm, measured = map(float, sys.argv[1:3])
register_custom_components()
cfg = parse_custom_args(sys.argv[3:])
sampler = SyncSamplingAPI(cfg, obtain_env_info_in_a_separate_process(cfg))
sampler.start()
# What takes long before the first frame is not measured.
sampler.get_trajectories_sync()


def rate(seconds):
    began, frames, passed = time.monotonic(), 0, 0.0
    while passed < seconds:
        frames += samples_per_trajectory(sampler.get_trajectories_sync())
        passed = time.monotonic() - began
    return frames / passed


rate(warm)
print(rate(measured), flush=True)
sampler.stop()
