//! Trajectories recorded from Gymnasium 1.4.0 with NumPy.
//!
//! Made with `gymnasium.make("CartPole-v1")`, `reset(seed=s)` and `step` with the rule of each test
//! until the end, printing `repr(float(v))` of every value of `env.unwrapped.state`. The seeds are
//! 7, 11, 3 and 5, in the order of the tests.

#![expect(
    clippy::unreadable_literal,
    reason = "recorded numbers stay as they were printed"
)]

use super::*;

/// Replays `rule` from the first recorded state and compares the others.
fn replay(rule: impl Fn(u32, [f64; 4]) -> bool, ending: Ending, recorded: &[(u32, [f64; 4])]) {
    let mut environment = CartPole::from_state(recorded[0].1);
    let mut ended = None;
    for (step, expected) in recorded {
        while environment.steps() < *step {
            assert_eq!(ended, None, "ended early at step {}", environment.steps());
            ended = environment.step(rule(environment.steps(), *environment.state()));
        }
        for (actual, expected) in environment.state().iter().zip(expected) {
            assert!(
                (actual - expected).abs() < 1e-12,
                "step {step}: {actual} is not {expected}"
            );
        }
    }
    assert_eq!(ended, Some(ending));
}

#[test]
fn pushing_right_fells_the_pole_as_in_gymnasium() {
    replay(
        |_, _| true,
        Ending::Terminated,
        &[
            (
                0,
                [
                    0.012509546660466692,
                    0.039721380096957554,
                    0.02756856902451936,
                    -0.027479281000940815,
                ],
            ),
            (
                1,
                [
                    0.013303974262405843,
                    0.23443735256335055,
                    0.027018983404500544,
                    -0.31133812218550244,
                ],
            ),
            (
                2,
                [
                    0.017992721313672855,
                    0.429164156286296,
                    0.020792220960790496,
                    -0.595379102958421,
                ],
            ),
            (
                5,
                [
                    0.05543556861099079,
                    1.014223730689581,
                    -0.03217052462893835,
                    -1.4667287903194137,
                ],
            ),
            (
                10,
                [
                    0.19600265694391739,
                    1.9933681601412738,
                    -0.24119377983298576,
                    -3.0765268757671302,
                ],
            ),
        ],
    );
}

#[test]
fn alternating_falls_as_in_gymnasium() {
    replay(
        |step, _| step % 2 == 1,
        Ending::Terminated,
        &[
            (
                0,
                [
                    -0.03714297972308004,
                    -7.221375598850249e-5,
                    0.010149835762335746,
                    -0.04713109916280555,
                ],
            ),
            (
                1,
                [
                    -0.03714442399819981,
                    -0.1953382246185266,
                    0.009207213779079635,
                    0.24873683063296959,
                ],
            ),
            (
                2,
                [
                    -0.041051188490570344,
                    -0.00034896456962865696,
                    0.014181950391739025,
                    -0.04102777958523368,
                ],
            ),
            (
                5,
                [
                    -0.04498644980022174,
                    -0.1961247862474255,
                    0.01783644904910759,
                    0.2661137996489109,
                ],
            ),
            (
                10,
                [
                    -0.05685539058655485,
                    -0.0027253997560672816,
                    0.03409408501306568,
                    0.011406411891304258,
                ],
            ),
            (
                34,
                [
                    -0.1102315097751342,
                    -0.035529525596997125,
                    0.22700861756414623,
                    0.7531370217573725,
                ],
            ),
        ],
    );
}

#[test]
fn balancing_is_truncated_as_in_gymnasium() {
    replay(
        |_, [x, x_dot, theta, theta_dot]| theta + 0.3 * theta_dot + 0.05 * x + 0.1 * x_dot > 0.0,
        Ending::Truncated,
        &[
            (
                0,
                [
                    -0.04143508328563757,
                    -0.02631894934039003,
                    0.030127446520639686,
                    0.008216203606436781,
                ],
            ),
            (
                1,
                [
                    -0.04196146227244537,
                    0.16835826814074892,
                    0.03029177059276842,
                    -0.27481097724869463,
                ],
            ),
            (
                2,
                [
                    -0.03859429690963039,
                    -0.027182489412550553,
                    0.024795551047794528,
                    0.02727001812675084,
                ],
            ),
            (
                5,
                [
                    -0.03634442424781096,
                    0.16692754532780618,
                    0.021052782987155936,
                    -0.24316540770517414,
                ],
            ),
            (
                10,
                [
                    -0.027507643614330987,
                    -0.029349140149796032,
                    0.009574851687322729,
                    0.07506033399785628,
                ],
            ),
            (
                50,
                [
                    -0.011500665135001108,
                    -0.026775911432838,
                    0.0008981451816129629,
                    0.018293195865023204,
                ],
            ),
            (
                100,
                [
                    -0.02632094443440539,
                    -0.02638456728898861,
                    -0.0038466484483099007,
                    0.009660480873325161,
                ],
            ),
            (
                500,
                [
                    -0.11013469293336377,
                    -0.027538318407457574,
                    -0.006016531186306321,
                    0.035113571193463367,
                ],
            ),
        ],
    );
}

#[test]
fn drifting_leaves_the_track_as_in_gymnasium() {
    replay(
        |_, [_, _, theta, theta_dot]| theta + 0.3 * theta_dot - 0.06 > 0.0,
        Ending::Terminated,
        &[
            (
                0,
                [
                    0.030500292374538024,
                    0.030794078973649372,
                    0.0015325561042141972,
                    -0.02141986199118584,
                ],
            ),
            (
                1,
                [
                    0.031116173954011013,
                    -0.1643498170856995,
                    0.0011041588643904802,
                    0.2717462096611848,
                ],
            ),
            (
                2,
                [
                    0.027829177612297022,
                    0.030756361036809343,
                    0.006539083057614176,
                    -0.020588256482196587,
                ],
            ),
            (
                5,
                [
                    0.025766634515295987,
                    -0.1647112779986968,
                    0.01127846169651161,
                    0.2797299475618309,
                ],
            ),
            (
                10,
                [
                    0.017057127928219184,
                    0.029125975103980517,
                    0.028499300219192465,
                    0.015383996733854932,
                ],
            ),
            (
                50,
                [
                    0.17792069069624866,
                    0.3898126216716194,
                    0.05505562692305594,
                    0.08215012284859152,
                ],
            ),
            (
                100,
                [
                    0.909616414684829,
                    1.1269058710445319,
                    0.0568726879991941,
                    -0.13167506623163794,
                ],
            ),
            (
                155,
                [
                    2.407823145421252,
                    1.6638016821554247,
                    0.06438474910510195,
                    0.05984106595514588,
                ],
            ),
        ],
    );
}

#[test]
fn episodes_start_near_the_middle() {
    use rand::{SeedableRng, rngs::StdRng};

    let mut rng = StdRng::seed_from_u64(1);
    let starts: Vec<_> = (0..1000)
        .flat_map(|_| *CartPole::reset(&mut rng).state())
        .collect();
    assert!(starts.iter().all(|value| (-0.05..0.05).contains(value)));
    assert!(
        starts.iter().any(|value| *value < -0.045) && starts.iter().any(|value| *value > 0.045)
    );
}

#[test]
fn a_pole_that_falls_in_the_last_step_has_fallen() {
    let fallen = CartPole {
        state: [0.0, 0.0, 0.25, 0.0],
        steps: MAX_STEPS - 1,
    };
    assert_eq!(fallen.clone().step(true), Some(Ending::Terminated));
    let upright = CartPole {
        state: [0.0; 4],
        steps: MAX_STEPS - 1,
    };
    assert_eq!(upright.clone().step(true), Some(Ending::Truncated));
}
