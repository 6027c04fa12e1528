# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Plimsoll(CMakePackage):
    """Memory-bounded training of graph neural networks: says before the start whether a job
    fits, and stays under its memory limit."""

    # Not published yet: in the unpacked archive of tools/release, `spack dev-build plimsoll@0.2.0`.
    url = "file:///plimsoll-0.2.0.tar.xz"

    license("Apache-2.0")

    version("0.2.0")

    variant("mpi", default=True, description="the plugin that starts a training as several ranks")
    variant("python", default=True, description="the Python package")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("liburing")
    depends_on("isa-l")
    depends_on("zstd")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("libyaml")
    depends_on("onednn@2.6: cpu_runtime=omp")
    depends_on("mpi", when="+mpi")
    depends_on("python@3.10:", when="+python", type=("build", "link", "run"))

    requires("target=x86_64_v2:", msg="the kernels are written with x86 intrinsics")

    generator("ninja")
    extends("python", when="+python")

    def cmake_args(self):
        args = [
            self.define("PLIMSOLL_TESTS", False),
            self.define_from_variant("PLIMSOLL_PYTHON", "python"),
        ]
        if self.spec.satisfies("+python"):
            directory = python_platlib.replace(self.prefix + "/", "")
            args.append(self.define("PLIMSOLL_PYTHON_DIR", directory))
        return args

    @run_after("install", when="+mpi")
    def compile_plugin(self):
        # Any MPI's compiler wrapper makes the plugin of one file; CMake knows two by pkg-config.
        plugins = join_path(self.prefix.lib, "plimsoll")
        source = join_path(plugins, "mpi")
        mpicc = Executable(self.spec["mpi"].mpicc)
        mpicc("-shared", "-fPIC", "-O2", "-I", source, "-o", join_path(plugins, "plimsoll-mpi.so"),
              join_path(source, "mpi_plugin.c"))
