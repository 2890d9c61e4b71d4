# The stand-ins for libcuda and NVRTC, with which tests run the CUDA backend on the CPU, and their own tests. Included
# by the root where tests are built; sets standin_environment, what a test needs that uses them.
# SPDX-License-Identifier: MIT
set(standin "${PROJECT_SOURCE_DIR}/tests/standin")
set(standin_threads accesses emulator fiber mbarriers barriers order traffic) # what runs on stacks of its own
list(TRANSFORM standin_threads REPLACE "(.+)" "${standin}/\\1.c")

add_library(standin_cuda SHARED ${standin_threads}
	${standin}/calls.c
	${standin}/driver_devices.c
	${standin}/driver_launch.c
	${standin}/driver_memory.c
	${standin}/driver_modules.c
	${standin}/driver_objects.c
	${standin}/driver_streams.c)
add_library(standin_nvrtc SHARED ${standin}/calls.c ${standin}/nvrtc.c)
foreach(target standin_cuda standin_nvrtc)
	evenkeel_flags(${target})
	target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/src"
		"${PROJECT_SOURCE_DIR}/include")
	target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
	set_target_properties(${target} PROPERTIES C_VISIBILITY_PRESET hidden
		LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
endforeach()

# Kernels are watched as the rest of the build is, but for threads: they have one, and ThreadSanitizer would
# take each stack for another's.
set(standin_cflags "")
if(EVENKEEL_SANITIZE MATCHES "address")
	set(standin_cflags "-fsanitize=${EVENKEEL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer")
elseif(EVENKEEL_SANITIZE STREQUAL "thread")
	set_source_files_properties(${standin_threads} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
endif()
target_compile_definitions(standin_nvrtc PRIVATE "STANDIN_FOLDER=\"${standin}\""
	"STANDIN_CC=\"${CMAKE_C_COMPILER}\"" "STANDIN_CFLAGS=\"${standin_cflags}\"")

set(standin_environment
	"EVENKEEL_LIBCUDA=$<TARGET_FILE:standin_cuda>;EVENKEEL_NVRTC=$<TARGET_FILE:standin_nvrtc>")

# tests/standin/test_NAME.c is the program build/tests/test_standin_NAME and the ctest standin_NAME.
foreach(name driver emulator loader)
	set(test standin_${name})
	add_executable(test_${test} ${standin}/test_${name}.c ${standin}/selftest.c)
	evenkeel_program(test_${test} tests)
	target_link_libraries(test_${test} PRIVATE evenkeel_test_support evenkeel_static m Threads::Threads
		${CMAKE_DL_LIBS})
	add_dependencies(test_${test} standin_cuda standin_nvrtc)
	add_test(NAME ${test} COMMAND test_${test} ${EVENKEEL_TEST_MODE} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
	set_tests_properties(${test} PROPERTIES ENVIRONMENT "${standin_environment}")
endforeach()
