"""Shows `kubectl di dashboard` in headless Chromium while a job trains, from its start to its end.

browser.py NAMESPACE JOB [FOLDER]: the job has two declared collectors and does not end by itself. The namespace also has the
jobs `typo`, which fails, and `large`, which fits no node. With FOLDER, writes a picture of each screen, light and dark.
"""

import subprocess
import sys
import time
from contextlib import contextmanager

from playwright.sync_api import expect, sync_playwright

# Much longer than any step takes, so that only a bug reaches it.
TIMEOUT_S = 300
# The curves of the pictures need some points.
CURVE_S = 60


@contextmanager
def open_dashboard(namespace, job):
    """Runs the plugin, and yields the address of the page."""
    command = ["kubectl", "di", "-n", namespace, "dashboard", job, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def kubectl(namespace, *words, stdin=None):
    done = subprocess.run(["kubectl", "-n", namespace, *words], input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"


def until(description, read, accept):
    """Reads until the value is accepted, and returns it."""
    deadline = time.monotonic() + TIMEOUT_S
    while not accept(value := read()):
        assert time.monotonic() < deadline, f"not {description}; last seen: {value}"
        time.sleep(0.2)
    return value


def find_job(page, name):
    """The row of a job in the list."""
    return page.locator("tr").filter(has=page.get_by_role("link", name=name, exact=True))


def read_curve(page, stat):
    """The last value of a curve that a single replica reports."""
    texts = page.locator(f"figcaption:has(span[title={stat}]) b").all_text_contents()
    return float(texts[0].replace(",", "")) if texts and texts[0] else None


def read_collectors(page):
    """The names of the collectors that are ready."""
    rows = page.locator("tr:has(td .role.collector)").filter(has=page.locator(".pill.ok"))
    return set(rows.locator("td:nth-child(2)").all_text_contents())


def check_reasons(page):
    page.keyboard.press("1")
    expect(find_job(page, "typo")).to_contain_text("--pcae")
    expect(find_job(page, "large")).to_contain_text("Unschedulable")


def check_curve(page):
    page.keyboard.press("t")
    first = until("a first evaluation", lambda: read_curve(page, "evaluation"), bool)
    has_risen = lambda value: value and value > 1.5 * first
    last = until("higher", lambda: read_curve(page, "evaluation"), has_risen)
    expect(page.locator(".plot canvas").first).to_be_visible()
    print(f"the evaluation rises from {first} to {last}")


def check_replicas(page, namespace):
    page.keyboard.press("o")
    read = lambda: read_collectors(page)
    two = until("two collectors", read, lambda names: len(names) == 2)
    add = page.locator("[data-action=addCollector]")
    # The page does not know the permissions at once.
    expect(add).to_have_attribute("aria-disabled", "false")
    add.click()
    expect(page.locator(".notice.ok")).to_contain_text("collectors 2 -> 3")
    until("three collectors", read, lambda names: len(names) == 3 and two < names)

    killed = min(two)
    kubectl(namespace, "delete", "pod", killed, "--grace-period=0", "--force")
    until("replaced", read, lambda names: len(names) == 3 and killed not in names)
    expect(page.locator(".timeline li", has_text=f"replaces {killed}").first).to_be_visible()


def check_logs(page):
    page.keyboard.press("l")
    iterations = page.locator(".line:has(.coordinator)", has_text="iteration")
    count = until("lines of the coordinator", iterations.count, bool)
    until("followed", iterations.count, lambda now: now > count)
    expect(page.locator(".line .pod.collector").first).to_be_visible()


def check_end(page, namespace, job):
    """Ends the job while its logs are shown."""
    path = f"/api/v1/namespaces/{namespace}/pods/{job}-coordinator:22273/proxy/lifecycle/exit"
    kubectl(namespace, "create", "--raw", path, "-f", "-", stdin="{}")
    expect(page.locator(".head .pill")).to_have_text("Succeeded")
    expect(page.locator(".line", has_text="End of the logs.").first).to_be_visible()
    page.keyboard.press("t")
    expect(page.locator(".body > p").first).to_have_text("the job has ended")
    expect(page.locator(".plot canvas").first).to_be_visible()
    page.keyboard.press("1")
    expect(find_job(page, job)).to_contain_text("Succeeded")


def take_pictures(page, namespace, job, folder):
    """Visits each screen, the training first, since its curves begin when it is opened."""
    screens = {
        "training": (f"#/jobs/{namespace}/{job}/training", ".plot canvas"),
        "job": (f"#/jobs/{namespace}/{job}", ".timeline li"),
        "logs": (f"#/jobs/{namespace}/{job}/logs", ".line .collector"),
        "jobs": ("#/jobs", ".two a"),
        "cluster": ("#/cluster", ".panel td .pill"),
    }
    pictures = []
    page.keyboard.press("t")
    time.sleep(CURVE_S)
    for scheme in ["light", "dark"]:
        page.emulate_media(color_scheme=scheme)
        for name, (fragment, selector) in screens.items():
            page.evaluate("fragment => { location.hash = fragment }", fragment)
            page.locator(selector).first.wait_for()
            pictures.append(f"{folder}/{name}-{scheme}.png")
            page.screenshot(path=pictures[-1], animations="disabled")
    subprocess.run(["pngquant", "--force", "--ext=.png", "--strip", *pictures], check=True)
    page.evaluate("fragment => { location.hash = fragment }", f"#/jobs/{namespace}/{job}")


def run(page, namespace, job, folder=None):
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    # Chromium itself logs responses with an error, such as the refusal of a session without a cookie.
    is_problem = lambda message: message.type in ("error", "warning") and "Failed to load" not in message.text
    page.on("console", lambda message: problems.append(message.text) if is_problem(message) else None)
    began = time.monotonic()
    with open_dashboard(namespace, job) as url:
        page.goto(url, wait_until="commit")
        page.locator(".head .pill").wait_for()
        print(f"first view {1000 * (time.monotonic() - began):.0f} ms after the start of the command")
        check_curve(page)
        check_replicas(page, namespace)
        check_logs(page)
        check_reasons(page)
        page.go_back()
        page.locator(".line").first.wait_for()
        if folder:
            take_pictures(page, namespace, job, folder)
            page.keyboard.press("l")
        check_end(page, namespace, job)
    assert not problems, problems


def main():
    expect.set_options(timeout=1000 * TIMEOUT_S)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, locale="en-US")
        page.set_default_timeout(1000 * TIMEOUT_S)
        run(page, *sys.argv[1:])
        browser.close()


main()
