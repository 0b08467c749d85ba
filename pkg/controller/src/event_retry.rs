//! Retries events that could not be published.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tracing::warn;

use crate::{context::Context, event_queue::QueuedEvent};

/// Maximum number of events that wait for a retry; more are dropped and logged.
pub(crate) const RETRY_CAPACITY: usize = 256;
/// Together with the delays this takes most of a minute, about as long as an API server restarts.
const MAX_TRIES: u32 = 10;
const INITIAL_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Retries events one after the other, so that they do not overload a failing API server.
pub(crate) async fn retry_events(context: Arc<Context>, mut retries: mpsc::Receiver<QueuedEvent>) {
    while let Some(queued) = retries.recv().await {
        for attempt in 1..=MAX_TRIES {
            sleep(retry_delay(attempt)).await;
            match context.publish_event(&queued).await {
                Err(error) if error.is_retryable() && attempt < MAX_TRIES => {}
                Err(error) if !error.is_terminal() => {
                    warn!(
                        reason = queued.event.reason,
                        error = error.chain(),
                        "Dropped an event after its last retry"
                    );
                    break;
                }
                _ => break,
            }
        }
    }
}

fn retry_delay(attempt: u32) -> Duration {
    INITIAL_DELAY
        .saturating_mul(1 << (attempt - 1))
        .min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_doubles_to_ten_seconds() {
        let delays: Vec<_> = (1..=MAX_TRIES)
            .map(|attempt| retry_delay(attempt).as_secs_f64())
            .collect();
        assert_eq!(delays[..5], [0.5, 1.0, 2.0, 4.0, 8.0]);
        assert_eq!(delays[5..], [10.0; 5]);
    }
}
