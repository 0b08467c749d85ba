//! The interface of a worker.

use serde::de::DeserializeOwned;

use crate::{
    Result,
    lifecycle::report::{PollResult, Stats},
};

/// A worker: configured once, then polled until an exit call.
pub trait Worker: Send + 'static {
    /// The configuration; JSON when it arrives over HTTP.
    type Config: DeserializeOwned + Send;

    /// The name in the log.
    const NAME: &'static str;

    /// Prepares storage, devices and threads. Called again only while the worker does not run. An
    /// unusable configuration is [`BadConfig`](crate::Error::BadConfig), and the worker keeps its
    /// state.
    fn configure(&mut self, config: Self::Config) -> Result<()>;

    /// Performs one step. Calls are served between two polls, so a poll must not wait for work; it
    /// returns [`PollResult::NOTHING`]. Counts and [`stats`](Self::stats) are logged after polls
    /// that did something; an idle worker polls twenty times a second. An error ends the worker.
    fn poll(&mut self) -> Result<PollResult>;

    /// Numbers that are reported in addition to the counts.
    fn stats(&self) -> Stats {
        Stats::new()
    }

    /// Called before the first poll after a start. An error ends the worker.
    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called when polling is suspended. An error ends the worker.
    fn pause(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called after the last poll. An error is the result of the worker.
    fn exit(&mut self) -> Result<()> {
        Ok(())
    }
}
