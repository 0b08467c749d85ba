"""Plays episodes in Gymnasium and prints them, numbers by their bits, so that nothing of them is lost:

game NAME ACTIONS MAX_STEPS REWARD_THRESHOLD
start STATE OBSERVATION
step ACTION STATE OBSERVATION REWARD TERMINATED TRUNCATED
"""

import struct

import gymnasium
import numpy


def double(*values):
    return ",".join(struct.pack(">d", value).hex() for value in values)


def single(values):
    assert values.dtype == numpy.float32
    return ",".join(struct.pack(">f", value).hex() for value in values)


def balance(state):
    x, x_dot, theta, theta_dot = state
    return int(theta + 0.3 * theta_dot + 0.05 * x + 0.1 * x_dot > 0)


# Between these, any state can be.
LOW, HIGH = (-2.4, -3, -0.2, -3), (2.4, 3, 0.2, 3)


def play(env, seed, wide, choose):
    observation, _ = env.reset(seed=seed)
    world = env.unwrapped
    if wide:
        world.state = numpy.random.default_rng(seed).uniform(*wide)
        observation = None
    print("start", double(*world.state), "-" if observation is None else single(observation))
    ended = False
    while not ended:
        action = choose(world.state)
        observation, reward, terminated, truncated, _ = env.step(action)
        print(
            "step",
            action,
            double(*world.state),
            single(observation),
            double(reward),
            int(terminated),
            int(truncated),
        )
        ended = terminated or truncated


def main():
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    actions = int(env.action_space.n)
    spec = env.spec
    print("game", spec.id, actions, spec.max_episode_steps, double(spec.reward_threshold))
    for seed in range(12):
        rng = numpy.random.default_rng(seed)
        held = []

        def draw(_):
            return int(rng.integers(actions))

        def hold(_):
            if not held:
                held.extend([draw(_)] * int(rng.integers(1, 40)))
            return held.pop()

        wide = (LOW, HIGH) if seed % 2 else None
        for choose in draw, hold, balance:
            play(env, seed, wide, choose)


main()
