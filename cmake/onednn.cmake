# The name under which oneDNN is loaded (onednn_soname), where its header lies (onednn_include) and, for programs that run
# from the build tree, the library itself (their rpath). Not by its own CMake package: Debian's wants OpenCL's headers.
find_path(onednn_include dnnl.h REQUIRED)
find_library(onednn_file dnnl REQUIRED)
execute_process(COMMAND ${CMAKE_READELF} -d ${onednn_file} OUTPUT_VARIABLE dynamic ERROR_QUIET)
if(NOT dynamic MATCHES "\\(SONAME\\)[^\n]*\\[([^]\n]+)\\]")
  message(FATAL_ERROR "${onednn_file} has no soname: oneDNN must be a shared library, for it is loaded at run time")
endif()
set(onednn_soname ${CMAKE_MATCH_1})
get_filename_component(onednn_directory ${onednn_file} DIRECTORY)
list(APPEND CMAKE_BUILD_RPATH ${onednn_directory})
