"""Runs Python scripts each in a process of its own that has already imported what takes longer than they do."""
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import traceback


def run_in_a_fork(script, *arguments, directory=None, environment=None):
    """As `python SCRIPT ARGUMENTS`, but for torch_geometric, which this process has imported once; the script is a path, or the text itself."""
    text = script.read_text() if isinstance(script, pathlib.Path) else script
    if 'torch' in text:
        import torch_geometric  # noqa: F401
    with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+') as err:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.chdir(directory or '.')
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
                os.environ.update(environment or {})
                sys.argv = [str(script), *map(str, arguments)]
                if text is script:
                    exec(text, {'__name__': '__main__'})
                else:
                    sys.path.insert(0, str(script.parent))
                    runpy.run_path(str(script), run_name='__main__')
                code = 0
            except SystemExit as ending:
                code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([script, *arguments], os.waitstatus_to_exitcode(status), out.read(), err.read())
