//! Results of measurements.

use serde::{Deserialize, Serialize};

/// All repetitions of one thing that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Which benchmark, such as `B1`.
    pub benchmark: String,
    /// The measured value, such as `time until all pods are there`.
    pub what: String,
    /// The case, such as `n = 100`.
    pub case: String,
    /// The case as a number, for plots.
    pub x: usize,
    /// The alternative that was measured.
    pub subject: String,
    /// Unit of the values.
    pub unit: String,
    /// One value for each repetition, in their order.
    pub values: Vec<f64>,
    /// 99th percentile over the single samples of each repetition, where a repetition has many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub p99: Vec<f64>,
}

/// Whether a target was met.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Which benchmark.
    pub benchmark: String,
    /// The target.
    pub target: String,
    /// The measured value.
    pub measured: String,
    /// Whether it holds, by the median.
    pub met: bool,
    /// Whether it is an earlier target that is measured only for comparison with earlier results.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub history: bool,
}

/// All that a run found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    /// The measurements.
    pub series: Vec<Series>,
    /// The targets.
    pub verdicts: Vec<Verdict>,
}

/// Median and range.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Smallest.
    pub least: f64,
    /// Largest.
    pub most: f64,
}

/// Median and range of some values.
pub fn spread(values: &[f64]) -> Spread {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Spread {
        median: median(&sorted),
        least: quantile(&sorted, 0.0),
        most: quantile(&sorted, 1.0),
    }
}

/// The middle of sorted values, or between the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    let lower = sorted.len().saturating_sub(1) / 2;
    let upper = sorted.len() / 2;
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    f64::midpoint(at(lower), at(upper))
}

/// Quantile of sorted values; not a number where there are none.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let at = (last as f64 * q).ceil() as usize;
    sorted[at.min(last)]
}

/// A measured value and its case.
#[derive(Clone, Debug)]
pub struct At {
    /// Which benchmark.
    pub benchmark: &'static str,
    /// The measured value.
    pub what: &'static str,
    /// Unit of the values.
    pub unit: &'static str,
    /// The case.
    pub case: String,
    /// The case as a number, for plots.
    pub x: usize,
}

impl Findings {
    /// Adds the value of one repetition.
    pub fn add(&mut self, at: &At, subject: &str, value: f64) {
        self.series(at, subject).values.push(value);
    }

    /// Adds one repetition of many samples: what counts of it, and its 99th percentile.
    pub fn add_many(&mut self, at: &At, subject: &str, value: f64, p99: f64) {
        let series = self.series(at, subject);
        series.values.push(value);
        series.p99.push(p99);
    }

    fn series(&mut self, at: &At, subject: &str) -> &mut Series {
        let place = self.place(at.benchmark, at.what, &at.case, subject);
        let place = place.unwrap_or_else(|| {
            self.series.push(Series {
                benchmark: at.benchmark.to_owned(),
                what: at.what.to_owned(),
                case: at.case.clone(),
                x: at.x,
                subject: subject.to_owned(),
                unit: at.unit.to_owned(),
                values: Vec::new(),
                p99: Vec::new(),
            });
            self.series.len() - 1
        });
        &mut self.series[place]
    }

    fn place(&self, benchmark: &str, what: &str, case: &str, subject: &str) -> Option<usize> {
        self.series.iter().position(|s| {
            s.benchmark == benchmark && s.what == what && s.case == case && s.subject == subject
        })
    }

    /// The series that were added under this key.
    pub fn find(&self, benchmark: &str, what: &str, case: &str, subject: &str) -> Option<&Series> {
        let place = self.place(benchmark, what, case, subject)?;
        Some(&self.series[place])
    }

    /// States whether one is at most (or at least) a multiple of the other, per repetition: they were measured in turn.
    pub fn compare(&mut self, at: &At, ours: &str, theirs: &str, limit: Limit) {
        let of = |subject: &str| {
            let series = self.find(at.benchmark, at.what, &at.case, subject);
            series.map_or(&[][..], |series| &series.values)
        };
        let ratios: Vec<f64> = of(ours)
            .iter()
            .zip(of(theirs))
            .map(|(a, b)| a / b)
            .collect();
        if ratios.is_empty() {
            return;
        }
        let Spread {
            median,
            least,
            most,
        } = spread(&ratios);
        let (met, bound) = match limit {
            Limit::AtMost(limit) | Limit::FormerAtMost(limit) => {
                (median <= limit, format!("<= {limit}x"))
            }
            Limit::AtLeast(limit) => (median >= limit, format!(">= {limit}x")),
        };
        self.verdicts.push(Verdict {
            benchmark: at.benchmark.to_owned(),
            target: format!("{}, {}: {bound} {theirs}", at.what, at.case),
            measured: format!("{median:.2}x ({least:.2} to {most:.2})"),
            met,
            history: matches!(limit, Limit::FormerAtMost(_)),
        });
    }

    /// These, and of earlier ones those of other benchmarks.
    #[must_use]
    pub fn over(mut self, mut earlier: Self) -> Self {
        let new: Vec<String> = self
            .series
            .iter()
            .map(|series| series.benchmark.clone())
            .collect();
        earlier
            .series
            .retain(|series| !new.contains(&series.benchmark));
        earlier
            .verdicts
            .retain(|verdict| !new.contains(&verdict.benchmark));
        self.series.extend(earlier.series);
        self.verdicts.extend(earlier.verdicts);
        self.series.sort_by(|a, b| a.benchmark.cmp(&b.benchmark));
        self.verdicts.sort_by(|a, b| a.benchmark.cmp(&b.benchmark));
        self
    }

    /// States whether something holds.
    pub fn judge(&mut self, benchmark: &str, target: &str, measured: String, met: bool) {
        self.verdicts.push(Verdict {
            benchmark: benchmark.to_owned(),
            target: target.to_owned(),
            measured,
            met,
            history: false,
        });
    }
}

/// A bound of a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// No more than this.
    AtMost(f64),
    /// The same, as an earlier target that no longer counts.
    FormerAtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_two() {
        for (values, expected) in [
            (&[3.0][..], 3.0),
            (&[1.0, 2.0], 1.5),
            (&[9.0, 1.0, 2.0], 2.0),
        ] {
            assert!(
                (spread(values).median - expected).abs() < f64::EPSILON,
                "{values:?}"
            );
        }
    }
}
