//! Chooses an action from the logits of a policy by the softmax.

/// The action selected by a uniform number in 0..1, and its log probability.
pub(crate) fn draw_action(logits: &[f64], mut number: f64) -> (u8, f64) {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    let normaliser = largest + sum.ln();
    let mut action = logits.len() - 1;
    while action > 0 {
        let probability = (logits[action] - normaliser).exp();
        if number < probability {
            break;
        }
        number -= probability;
        action -= 1;
    }
    (to_action(action), logits[action] - normaliser)
}

/// The most likely action; the first of equal ones.
pub(crate) fn likeliest_action(logits: &[f64]) -> u8 {
    let better = |best: usize, action: usize| {
        if logits[action] > logits[best] {
            action
        } else {
            best
        }
    };
    to_action((1..logits.len()).fold(0, better))
}

fn to_action(action: usize) -> u8 {
    u8::try_from(action).expect("a game has few actions")
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn actions_are_drawn_by_probability() {
        let likely = [0.6_f64, 0.3, 0.1];
        // Adding a constant to all logits changes nothing.
        let logits = likely.map(|probability| probability.ln() + 700.0);
        assert_eq!(likeliest_action(&logits), 0);
        let mut rng = StdRng::seed_from_u64(2);
        let mut often = [0.0; 3];
        for _ in 0..10_000 {
            let (action, log_probability) = draw_action(&logits, rng.random());
            often[usize::from(action)] += 1e-4;
            assert!((log_probability.exp() - likely[usize::from(action)]).abs() < 1e-12);
        }
        for (often, likely) in often.iter().zip(likely) {
            assert!((often - likely).abs() < 0.02, "{often} is not {likely}");
        }
    }

    #[test]
    fn ties_choose_first_action() {
        assert_eq!(likeliest_action(&[-2.0, -0.5, -0.5]), 1);
        assert_eq!(likeliest_action(&[0.0]), 0);
    }
}
