//! The HTTP server of the webhooks, the replica endpoint, the health address and the dashboard.
//!
//! [`Server`] accepts connections with or without TLS, limits their number and their time, and
//! waits for running requests when it stops. [`read_body`] limits the body of a request.

mod address_limiter;
mod body;
mod connection;
mod limits;
mod server;
mod tls;

pub use body::{BodyError, read_body};
pub use connection::HttpService;
pub use limits::Limits;
pub use server::{ConnectionMetrics, Server};
pub use tls::{Certificates, crypto_provider, tls_config};

#[cfg(test)]
mod tests;
