# How src/nn/onednn.c reaches oneDNN (onednn_definition), where its header lies (onednn_include) and the library itself
# (onednn_file): cmake/libraries.cmake finds these two. Not by its own CMake package: Debian's wants OpenCL's headers.
#
# A shared library is loaded at run time, by the name that it has here: only what trains or evaluates pays for it. Programs
# that run from the build tree find it by their rpath. A static library is linked in.
if(onednn_file MATCHES "[.]a$")
  set(onednn_definition PLIM_ONEDNN_STATIC PLIM_ONEDNN_SONAME="libdnnl.a")
  target_link_libraries(PkgConfig::engines INTERFACE ${onednn_file} stdc++)
  return()
endif()
execute_process(COMMAND ${CMAKE_READELF} -d ${onednn_file} OUTPUT_VARIABLE dynamic ERROR_QUIET)
if(NOT dynamic MATCHES "\\(SONAME\\)[^\n]*\\[([^]\n]+)\\]")
  message(FATAL_ERROR "${onednn_file} has no soname, by which oneDNN is loaded at run time")
endif()
set(onednn_definition PLIM_ONEDNN_SONAME="${CMAKE_MATCH_1}")
get_filename_component(onednn_directory ${onednn_file} DIRECTORY)
list(APPEND CMAKE_BUILD_RPATH ${onednn_directory})
