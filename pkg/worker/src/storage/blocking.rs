//! Blocking calls to disks and networks, off the event loop.

use std::sync::Arc;

use tokio::{sync::Mutex, task::spawn_blocking};

use crate::{Error, Result};

/// Runs `work` on a thread that may block.
pub async fn run_blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R> + Send + 'static,
) -> Result<R> {
    spawn_blocking(work).await.map_err(Error::TaskLost)?
}

/// A value that blocking threads use one after another.
#[derive(Debug)]
pub struct BlockingCell<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> BlockingCell<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    /// Runs `work` with the value. Work that has started finishes before the next one, even if its
    /// caller was dropped.
    pub async fn run_exclusive<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let mut value = self.0.clone().lock_owned().await;
        run_blocking(move || work(&mut value)).await
    }

    /// Reads the value; `look` must not block.
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
        let (started, has_started) = channel();
        let (resume, resumed) = channel::<()>();
        let slow = numbers.run_exclusive(move |numbers| {
            started.send(()).unwrap();
            resumed.recv().unwrap();
            numbers.push(1);
            Ok(())
        });
        tokio::select! {
            biased;
            _ = slow => panic!("the work is blocked"),
            has_started = run_blocking(move || Ok(has_started.recv())) => has_started.unwrap().unwrap(),
        }
        let next = numbers.run_exclusive(|numbers| {
            numbers.push(2);
            Ok(numbers.clone())
        });
        resume.send(()).unwrap();
        assert_eq!(next.await.unwrap(), [0, 1, 2]);
        assert_eq!(numbers.read_value(Vec::len).await, 3);
    }
}
