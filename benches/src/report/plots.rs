use anyhow::{Result, anyhow};
use plotters::{
    coord::ranged1d::{KeyPointHint, Ranged},
    prelude::*,
};

use super::tables::{distinct, series, whats};
use crate::harness::stats::{Findings, Series, spread};

const SIZE: (u32, u32) = (760, 420);
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

/// A line through the medians of one subject, with the range of each.
struct Line {
    name: String,
    points: Vec<(f64, f64, f64, f64)>,
}

/// Plots of what a benchmark measured in cases of different sizes: file name, title and picture of each.
pub fn all(found: &Findings, benchmark: &str) -> Result<Vec<(String, String, String)>> {
    let mut plots = Vec::new();
    for what in whats(found, benchmark) {
        let of: Vec<&Series> = series(found, benchmark, &what).collect();
        let mut sizes: Vec<usize> = of
            .iter()
            .map(|series| series.x)
            .filter(|x| *x > 0)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 2 {
            continue;
        }
        let number = plots.len() + 1;
        let name = format!("{}-{number}.svg", benchmark.to_lowercase());
        let svg = draw(&what, of[0].unit.as_str(), &lines(&of))?;
        plots.push((name, what, svg));
    }
    Ok(plots)
}

/// One line for each subject, and for each kind of case where a case says more than its size.
fn lines(of: &[&Series]) -> Vec<Line> {
    let kind = |series: &Series| match series.case.split_once(", ") {
        Some((_, kind)) => format!("{}, {kind}", series.subject),
        None => series.subject.clone(),
    };
    let kinds: Vec<String> = of.iter().map(|series| kind(series)).collect();
    let lines = distinct(kinds.iter()).into_iter().map(|name| {
        let own = of.iter().filter(|series| {
            series.x > 0 && kind(series) == name && !series.case.contains(" in jobs of ")
        });
        let mut points: Vec<_> = own
            .map(|series| {
                let of = spread(&series.values);
                #[allow(clippy::cast_precision_loss)]
                let x = series.x as f64;
                (x, of.median, of.least, of.most)
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { name, points }
    });
    lines.filter(|line| !line.points.is_empty()).collect()
}

fn draw(title: &str, unit: &str, lines: &[Line]) -> Result<String> {
    let mut svg = String::new();
    render(&mut svg, title, unit, lines).map_err(|error| anyhow!("cannot draw: {error}"))?;
    Ok(svg)
}

fn render(
    svg: &mut String,
    title: &str,
    unit: &str,
    lines: &[Line],
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = |f: fn(&(f64, f64, f64, f64)) -> f64| points().map(f).fold(f64::MIN, f64::max);
    let least = |f: fn(&(f64, f64, f64, f64)) -> f64| points().map(f).fold(f64::MAX, f64::min);
    let (left, right) = (least(|p| p.0) / 1.3, most(|p| p.0) * 1.3);
    let (bottom, top) = (least(|p| p.2) / 1.5, most(|p| p.3) * 1.5);
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(66)
        .build_cartesian_2d(Decades(left, right), Decades(bottom, top))?;
    chart
        .configure_mesh()
        .y_desc(unit)
        .x_labels(12)
        .y_labels(12)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value: &f64| short(*value))
        .y_label_formatter(&|value: &f64| short(*value))
        .draw()?;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let medians = line.points.iter().map(|p| (p.0, p.1));
        chart
            .draw_series(LineSeries::new(medians.clone(), colour.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(medians.map(|at| Circle::new(at, 3, colour.filled())))?;
        let ranges = line.points.iter();
        chart.draw_series(ranges.map(|p| PathElement::new([(p.0, p.2), (p.0, p.3)], colour)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A logarithmic axis with marks at 1, 2 and 5 of each decade.
struct Decades(f64, f64);

impl Ranged for Decades {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value / self.0).ln() / (self.1 / self.0).ln();
        let length = f64::from(limit.1 - limit.0);
        #[allow(clippy::cast_possible_truncation)]
        let offset = (part * length).round() as i32;
        limit.0 + offset
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let decades = -4..=8;
        let marks = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(decade)));
        marks
            .filter(|mark| (self.0..=self.1).contains(mark))
            .collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0..self.1
    }
}

impl plotters::coord::ranged1d::ValueFormatter<f64> for Decades {
    fn format(value: &f64) -> String {
        short(*value)
    }
}

fn short(value: f64) -> String {
    if value >= 1000.0 {
        format!("{}k", value / 1000.0)
    } else {
        let rounded = (value * 1e4).round() / 1e4;
        rounded.to_string()
    }
}
