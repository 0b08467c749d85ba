use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use di_client::{Job, join_plan_with_pods};
use jiff::Timestamp;
use ratatui::{Terminal, backend::TestBackend};
use serde_json::json;

use super::*;
use crate::verbs::top::app::KeyResult;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn job(name: &str, phase: &str, reason: Option<&str>) -> Job {
    let job = di_fixtures::Job::test().named(name).uid(name);
    let job = job.metadata(json!({"creationTimestamp": "2026-01-01T00:55:00Z"}));
    let job = job.status(json!({
        "phase": phase, "reason": reason, "collectorsReady": "1/2", "learnersReady": "1/1",
        "plan": [
            {"name": format!("{name}-collector-aaaaa"), "type": "Collector", "origin": "Declared", "index": 0},
            {"name": format!("{name}-learner-aaaaa"), "type": "Learner", "origin": "Requested", "index": 0},
        ],
    }));
    Job::from(job.json())
}

fn jobs() -> Vec<Job> {
    vec![
        job("cartpole", "Running", Some("ImagePullBackOff")),
        job("pendulum", "Failed", Some("OOMKilled")),
        job("pong", "Succeeded", None),
    ]
}

/// A view of some jobs that keys can be sent to.
struct TestView {
    app: App,
    jobs: Vec<Job>,
    terminal: Terminal<TestBackend>,
}

impl TestView {
    fn new(width: u16, height: u16) -> Self {
        Self {
            app: App::new(Some("rl".to_owned())),
            jobs: jobs(),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
        }
    }

    fn page(&mut self) -> Page {
        let name = self.app.opened.clone().map(|(_, name)| name);
        let job = self
            .jobs
            .iter()
            .find(|job| Some(job.name()) == name.as_deref());
        let mut page = match job {
            Some(job) => Page::replicas_page(job, &join_plan_with_pods(job, &[]), now()),
            None => Page::jobs_page(self.jobs.iter(), Some("rl"), now()),
        };
        page.apply_filter(&self.app.filter);
        self.app.follow_page(&page);
        page
    }

    fn press(&mut self, keys: &[KeyCode]) -> KeyResult {
        let mut next = KeyResult::Continue;
        for key in keys {
            let page = self.page();
            next = self
                .app
                .handle_key(KeyEvent::new(*key, KeyModifiers::NONE), &page);
        }
        next
    }

    fn screen(&mut self) -> String {
        let page = self.page();
        let mut drawn = None;
        self.terminal
            .draw(|frame| drawn = Some(draw(frame, &page, &self.app)))
            .unwrap();
        let drawn = drawn.unwrap();
        (self.app.height, self.app.table) = (drawn.height, drawn.table);
        let text = self.terminal.backend().to_string();
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
        lines.collect::<Vec<_>>().join("\n")
    }

    fn marked(&mut self) -> String {
        let page = self.page();
        let at = self.app.table.selected();
        at.map_or_else(String::new, |at| page.lines[at].key.clone())
    }
}

#[test]
fn jobs_are_drawn_as_a_table() {
    insta::assert_snapshot!(TestView::new(90, 7).screen());
}

#[test]
fn small_screen_cuts_columns_and_lines() {
    let mut view = TestView::new(30, 4);
    view.press(&[KeyCode::End]);
    insta::assert_snapshot!(view.screen());
}

#[test]
fn enter_opens_a_job_and_esc_returns_to_it() {
    let mut view = TestView::new(100, 6);
    view.press(&[KeyCode::Down, KeyCode::Enter]);
    insta::assert_snapshot!(view.screen());
    view.press(&[KeyCode::Esc]);
    assert_eq!(view.marked(), "rl/pendulum");
}

#[test]
fn larger_screen_scrolls_up() {
    let mut view = TestView::new(100, 4);
    view.press(&[KeyCode::End]);
    assert!(!view.screen().contains("cartpole"));
    view.terminal.backend_mut().resize(100, 8);
    assert!(view.screen().contains("cartpole"), "{}", view.screen());
}

#[test]
fn filter_hides_lines_until_esc() {
    let mut view = TestView::new(90, 5);
    view.press(&[
        KeyCode::Char('/'),
        KeyCode::Char('o'),
        KeyCode::Char('O'),
        KeyCode::Char('q'),
    ]);
    assert!(
        view.screen().ends_with("/oOq_"),
        "q is typed: {}",
        view.screen()
    );
    view.press(&[KeyCode::Backspace, KeyCode::Enter]);
    insta::assert_snapshot!(view.screen());
    view.press(&[KeyCode::Esc]);
    assert_eq!(view.page().lines.len(), 3);
}

#[test]
fn marked_job_stays_marked_when_others_change() {
    let mut view = TestView::new(90, 7);
    view.press(&[KeyCode::Down]);
    view.screen();
    view.jobs.insert(0, job("acrobot", "Created", None));
    assert!(view.screen().contains("acrobot"), "{}", view.screen());
    assert_eq!(view.marked(), "rl/pendulum");
    view.jobs.retain(|job| job.name() != "pendulum");
    assert_eq!(view.marked(), "rl/pong", "the job at the same position");
    view.jobs.clear();
    assert_eq!(view.marked(), "");
    assert!(view.screen().contains("Jobs in rl  none"));
}

#[test]
fn help_is_shown_until_the_next_key() {
    let mut view = TestView::new(60, 12);
    view.press(&[KeyCode::Char('?')]);
    insta::assert_snapshot!(view.screen());
    assert_eq!(
        view.press(&[KeyCode::Char('q')]),
        KeyResult::Continue,
        "the key closes the help"
    );
    assert_eq!(view.press(&[KeyCode::Char('q')]), KeyResult::Quit);
}

#[test]
fn watch_error_is_shown_in_the_footer() {
    let mut view = TestView::new(60, 4);
    let mut page = view.page();
    page.trouble = Some("connection refused".to_owned());
    let footer = footer_line(&page, &view.app).to_string();
    assert_eq!(footer, "not up to date, retrying: connection refused");
}
