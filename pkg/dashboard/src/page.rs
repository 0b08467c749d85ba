//! The files of the page. They are static and embedded.

use std::{future::ready, sync::Arc};

use axum::{Router, http::header, routing::get};

use crate::shared::Shared;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// Path, content type and content of a file.
type File = (&'static str, &'static str, &'static [u8]);

/// Embeds a file of the page.
macro_rules! embed {
    ($name:literal, $content_type:expr) => {
        (
            concat!("/", $name),
            $content_type,
            include_bytes!(concat!("../page/", $name)),
        )
    };
}

const INDEX: File = ("/", HTML, include_bytes!("../page/index.html"));
const FILES: [File; 19] = [
    INDEX,
    embed!("actions.js", SCRIPT),
    embed!("api.js", SCRIPT),
    embed!("app.js", SCRIPT),
    embed!("cluster.js", SCRIPT),
    embed!("dom.js", SCRIPT),
    embed!("i18n.js", SCRIPT),
    embed!("icon.svg", SVG),
    embed!("job.js", SCRIPT),
    embed!("jobparts.js", SCRIPT),
    embed!("jobs.js", SCRIPT),
    embed!("logs.js", SCRIPT),
    embed!("style.css", CSS),
    embed!("table.js", SCRIPT),
    embed!("training.js", SCRIPT),
    embed!("vendor/LICENSE", TEXT),
    embed!("vendor/uPlot.css", CSS),
    embed!("vendor/uPlot.js", SCRIPT),
    embed!("watch.js", SCRIPT),
];

/// The routes of the files.
pub(crate) fn page_routes() -> Router<Arc<Shared>> {
    let files = FILES.into_iter();
    files.fold(Router::new(), |routes, (path, content_type, content)| {
        let response = ([(header::CONTENT_TYPE, content_type)], content);
        routes.route(path, get(move || ready(response.clone())))
    })
}
