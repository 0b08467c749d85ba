//! Events that could not be published at once are sent again.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tracing::warn;

use crate::{context::Context, outbox::News};

/// How many are kept; more are lost, and logged.
pub(crate) const MOST: usize = 256;
/// Together with the waits, most of a minute: about as long as an API server takes to come back.
const TRIES: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Sends events one after the other, each until it is there: a server that is ill is not asked by all of them at once.
pub(crate) async fn resend(context: Arc<Context>, mut unsent: mpsc::Receiver<News>) {
    while let Some(news) = unsent.recv().await {
        for tried in 1..=TRIES {
            sleep(wait(tried)).await;
            match context.send(&news).await {
                Err(error) if error.may_pass() && tried < TRIES => {}
                Err(error) if !error.is_moot() => {
                    warn!(
                        reason = news.event.reason,
                        error = error.chain(),
                        "Gave up an event"
                    );
                    break;
                }
                _ => break,
            }
        }
    }
}

fn wait(tried: u32) -> Duration {
    FIRST_WAIT
        .saturating_mul(1 << (tried - 1))
        .min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_ten_seconds() {
        let waits: Vec<_> = (1..=TRIES).map(|tried| wait(tried).as_secs_f64()).collect();
        assert_eq!(waits[..5], [0.5, 1.0, 2.0, 4.0, 8.0]);
        assert_eq!(waits[5..], [10.0; 5]);
    }
}
