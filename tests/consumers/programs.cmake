# The programs of both projects, by README's lines: C and C++, with the shared and the static library.
# SPDX-License-Identifier: MIT
add_executable(program program.c)
target_link_libraries(program PRIVATE evenkeel::evenkeel)
add_executable(program_static program.c)
target_link_libraries(program_static PRIVATE evenkeel::evenkeel_static)
add_executable(program_cc program.cc)
target_link_libraries(program_cc PRIVATE evenkeel::evenkeel)
add_executable(program_cc_static program.cc)
target_link_libraries(program_cc_static PRIVATE evenkeel::evenkeel_static)
set_target_properties(program_cc program_cc_static PROPERTIES CXX_STANDARD 11)
