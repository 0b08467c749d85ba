//! What waits for disks and networks, beside the event loop.

use std::sync::Arc;

use tokio::{sync::Mutex, task::spawn_blocking};

use crate::{Error, Result};

/// Does what waits on a thread that may.
pub async fn beside<R: Send + 'static>(
    work: impl FnOnce() -> Result<R> + Send + 'static,
) -> Result<R> {
    spawn_blocking(work).await.map_err(Error::TaskLost)?
}

/// What is worked on beside the event loop, by one at a time.
#[derive(Debug)]
pub struct Beside<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> Beside<T> {
    /// Takes it over.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    /// Works on it. What has begun is done to its end, even if nobody waits for it any more, and before what is asked for next.
    pub async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let mut value = self.0.clone().lock_owned().await;
        beside(move || work(&mut value)).await
    }

    /// Looks at it, which must not wait for anything else.
    pub async fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&*self.0.lock().await)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn what_has_begun_is_done_before_what_comes_next_though_nobody_waits() {
        let numbers = Beside::new(vec![0]);
        let (begun, begins) = channel();
        let (go_on, goes_on) = channel::<()>();
        let slow = numbers.work(move |numbers| {
            begun.send(()).unwrap();
            goes_on.recv().unwrap();
            numbers.push(1);
            Ok(())
        });
        tokio::select! {
            biased;
            _ = slow => panic!("it is not told to go on"),
            begins = beside(move || Ok(begins.recv())) => begins.unwrap().unwrap(),
        }
        let next = numbers.work(|numbers| {
            numbers.push(2);
            Ok(numbers.clone())
        });
        go_on.send(()).unwrap();
        assert_eq!(next.await.unwrap(), [0, 1, 2]);
        assert_eq!(numbers.look(Vec::len).await, 3);
    }
}
