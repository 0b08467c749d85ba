//! What waits for disks and networks, beside the event loop.

use std::sync::Arc;

use tokio::{sync::Mutex, task::spawn_blocking};

use crate::{Error, Result};

/// Does what waits on a thread that may.
pub async fn run_blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R> + Send + 'static,
) -> Result<R> {
    spawn_blocking(work).await.map_err(Error::TaskLost)?
}

/// What is worked on beside the event loop, by one at a time.
#[derive(Debug)]
pub struct BlockingCell<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> BlockingCell<T> {
    /// Takes it over.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    /// Works on it. What has begun is done to its end, even if nobody waits for it any more, and before what is asked for next.
    pub async fn run_exclusive<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let mut value = self.0.clone().lock_owned().await;
        run_blocking(move || work(&mut value)).await
    }

    /// Looks at it, which must not wait for anything else.
    pub async fn read_value<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&*self.0.lock().await)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn started_work_finishes_before_next_work() {
        let numbers = BlockingCell::new(vec![0]);
        let (begun, begins) = channel();
        let (go_on, goes_on) = channel::<()>();
        let slow = numbers.run_exclusive(move |numbers| {
            begun.send(()).unwrap();
            goes_on.recv().unwrap();
            numbers.push(1);
            Ok(())
        });
        tokio::select! {
            biased;
            _ = slow => panic!("it is not told to go on"),
            begins = run_blocking(move || Ok(begins.recv())) => begins.unwrap().unwrap(),
        }
        let next = numbers.run_exclusive(|numbers| {
            numbers.push(2);
            Ok(numbers.clone())
        });
        go_on.send(()).unwrap();
        assert_eq!(next.await.unwrap(), [0, 1, 2]);
        assert_eq!(numbers.read_value(Vec::len).await, 3);
    }
}
