mod aggregators;
mod errors;
mod isolation;
mod limits;
mod list;
mod queues;
mod response_format;
