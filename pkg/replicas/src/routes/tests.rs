mod aggregators;
mod isolation;
mod limits;
mod list;
mod errors;
mod response_format;
