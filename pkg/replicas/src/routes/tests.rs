mod aggregators;
mod isolation;
mod limits;
mod reads;
mod refusals;
mod shape;
