# labels: together
"""Optimisers, schedules, losses and norms against PyTorch's own."""
import os
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')

PROBE = os.path.join(os.environ.get('PLIMSOLL_PROBES', ''), 'probe_parts')
pytestmark = pytest.mark.skipif(not os.path.exists(PROBE), reason='no probe_parts: run by ctest, or set PLIMSOLL_PROBES')


def probe(*words, data=()):
    stdin = b''.join(np.ascontiguousarray(a).tobytes() for a in data)
    return subprocess.run([PROBE, *map(str, words)], input=stdin, stdout=subprocess.PIPE, check=True).stdout


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


OPTIMISERS = [
    (0, torch.optim.Adam, {}),
    (0, torch.optim.Adam, {'weight_decay': 0.05}),
    (1, torch.optim.AdamW, {'weight_decay': 0.05}),
    (2, torch.optim.SGD, {}),
    (2, torch.optim.SGD, {'momentum': 0.9, 'weight_decay': 0.05}),
]


@pytest.mark.parametrize('clip', [0, 5.0])
@pytest.mark.parametrize('kind, make, options', OPTIMISERS)
def test_a_hundred_steps(kind, make, options, clip):
    count, steps, rate = 1003, 100, 0.01
    value, gradients = numbers(1, count), numbers(2, steps, count)
    got = np.frombuffer(probe('optimiser', kind, rate, options.get('momentum', 0), options.get('weight_decay', 0), clip,
                              count, steps, data=[value, gradients]), np.float32)
    tensor = torch.nn.Parameter(torch.tensor(value))
    optimiser = make([tensor], lr=rate, foreach=False, **options)
    for gradient in gradients:
        tensor.grad = torch.tensor(gradient)
        if clip:
            torch.nn.utils.clip_grad_norm_([tensor], clip)
        optimiser.step()
    np.testing.assert_allclose(got, tensor.detach().numpy(), rtol=2e-6, atol=2e-6)


def rates_of(make, epochs):
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = make(optimiser)
    rates = []
    for _ in range(epochs):
        rates.append(optimiser.param_groups[0]['lr'])
        optimiser.step()
        schedule.step()
    return rates


def test_schedules():
    epochs = 17
    cosine = np.frombuffer(probe('schedule', 1, 0.3, epochs, 0, 0))
    np.testing.assert_allclose(cosine, rates_of(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, epochs), epochs),
                               rtol=1e-9)
    step = np.frombuffer(probe('schedule', 2, 0.3, epochs, 5, 0.3))
    np.testing.assert_allclose(step, rates_of(lambda o: torch.optim.lr_scheduler.StepLR(o, 5, 0.3), epochs), rtol=1e-12)


@pytest.mark.parametrize('rows, width', [(128, 172), (7, 2), (1000, 47)])
def test_cross_entropy(rows, width):
    outputs, labels = 5 * numbers(3, rows, width), np.random.default_rng(4).integers(0, width, rows)
    labels[::5] = -1
    out = probe('loss', 1, rows, width, 1 / rows, data=[outputs, labels])
    got, gradient = np.frombuffer(out[:8])[0], np.frombuffer(out[8:], np.float32).reshape(rows, width)
    x = torch.tensor(outputs, requires_grad=True)
    want = torch.nn.functional.cross_entropy(x, torch.tensor(labels), ignore_index=-1, reduction='sum')
    (want / rows).backward()
    assert abs(got - want.item()) < 2e-6 * abs(want.item())
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize('kind, function', [
    (2, torch.nn.functional.binary_cross_entropy_with_logits), (3, torch.nn.functional.mse_loss), (4, torch.nn.functional.l1_loss)])
def test_losses_of_values(kind, function):
    rows, width = 91, 12
    outputs, labels = 4 * numbers(5, rows, width), (numbers(6, rows, width) > 0).astype(np.float32)
    out = probe('loss', kind, rows, width, 1 / rows, data=[outputs, labels])
    got, gradient = np.frombuffer(out[:8])[0], np.frombuffer(out[8:], np.float32).reshape(rows, width)
    x = torch.tensor(outputs, requires_grad=True)
    want = function(x, torch.tensor(labels))  # with all known, the mean over rows is the mean over all
    want.backward()
    assert abs(got / rows - want.item()) < 2e-6 * abs(want.item())
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('activation', [0, 1, 2])
@pytest.mark.parametrize('norm', [0, 1, 2])
def test_finish(norm, activation, training):
    rows, width = 301, 67
    y, dh = numbers(7, rows, width), numbers(8, rows, width)
    bias, gamma, beta, running_mean = numbers(9, 4, width)
    running_var = np.abs(numbers(10, width)) + 0.5
    out = np.frombuffer(probe('finish', norm, activation, int(training), rows, width,
                              data=[y, dh, bias, gamma, beta, running_mean, running_var]), np.float32)
    h, dy = out[:2 * rows * width].reshape(2, rows, width)
    dbias, dgamma, dbeta, mean, var = out[2 * rows * width:].reshape(5, width)
    layer = {0: torch.nn.Identity, 1: lambda: torch.nn.LayerNorm(width), 2: lambda: torch.nn.BatchNorm1d(width)}[norm]()
    if norm:
        layer.weight.data, layer.bias.data = torch.tensor(gamma), torch.tensor(beta)
    if norm == 2:
        layer.running_mean, layer.running_var = torch.tensor(running_mean), torch.tensor(running_var)
    layer.train(training)
    x, b = torch.tensor(y, requires_grad=True), torch.tensor(bias, requires_grad=True)
    want = {0: lambda t: t, 1: torch.relu, 2: torch.nn.functional.elu}[activation](layer(x + b))
    close = lambda a, t: np.testing.assert_allclose(a, t.detach().numpy(), rtol=1e-4, atol=1e-5)
    close(h, want)
    if not training:
        return
    want.backward(torch.tensor(dh))
    close(dy, x.grad)
    np.testing.assert_allclose(dbias, b.grad.numpy(), rtol=1e-4, atol=1e-4)
    if norm:
        np.testing.assert_allclose(dgamma, layer.weight.grad.numpy(), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(dbeta, layer.bias.grad.numpy(), rtol=1e-4, atol=1e-4)
    if norm == 2:
        close(mean, layer.running_mean)
        close(var, layer.running_var)
