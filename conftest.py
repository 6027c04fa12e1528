"""A file of tests that were all skipped must not look like one that passed: it ends with 77, which ctest calls skipped."""


def pytest_configure(config):
    config.addinivalue_line('markers', 'nightly: too long for .ci/run; ctest has it as NAME.nightly.py')


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin('terminalreporter')
    ran = reporter.stats.get('passed', []) + reporter.stats.get('failed', []) + reporter.stats.get('error', [])
    # pytest's 5: nothing was collected, as when a whole file is skipped because a module is missing.
    if (exitstatus == 0 or (exitstatus == 5 and reporter.stats.get('skipped'))) and not ran:
        session.exitstatus = 77
