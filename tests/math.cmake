# The functions of src/math for the tests: every level's, the reference's, and exact values. Included by the root where tests
# are built. SPDX-License-Identifier: MIT
set(math_objects)
foreach(level ${levels})
	add_library(evenkeel_math_${level} OBJECT tests/math_level.c)
	evenkeel_compiled(evenkeel_math_${level})
	target_include_directories(evenkeel_math_${level} PRIVATE tests)
	target_compile_definitions(evenkeel_math_${level} PRIVATE "ISA_HEADER=\"cpu/isa_${level}.h\"")
	target_compile_options(evenkeel_math_${level} PRIVATE ${${level}})
	list(APPEND math_objects $<TARGET_OBJECTS:evenkeel_math_${level}>)
endforeach()
add_library(evenkeel_test_math STATIC tests/math_exact.c tests/support_math.c ${math_objects})
evenkeel_compiled(evenkeel_test_math)
target_include_directories(evenkeel_test_math PRIVATE . tests)
target_link_libraries(evenkeel_test_math PRIVATE evenkeel_static m)

# MPFR checks the errors of binary64; without it that test is skipped.
find_path(MPFR_INCLUDE mpfr.h)
find_library(MPFR_LIBRARY mpfr)
find_library(GMP_LIBRARY gmp)
if(MPFR_INCLUDE AND MPFR_LIBRARY AND GMP_LIBRARY)
	target_compile_definitions(evenkeel_test_math PRIVATE HAS_MPFR)
	target_include_directories(evenkeel_test_math PRIVATE "${MPFR_INCLUDE}")
	target_link_libraries(evenkeel_test_math PRIVATE "${MPFR_LIBRARY}" "${GMP_LIBRARY}")
endif()

# gpu_math compares a GPU with the CPU; as the test cuda_math it runs on the stand-in.
add_custom_command(OUTPUT math_texts.c
	COMMAND "${CMAKE_COMMAND}" "-DFOLDER=${PROJECT_SOURCE_DIR}/tests"
		"-DTEXTS=math_functions=math_functions.h,math_kernel=math.cu" -DPREFIX=text -DOUTPUT=math_texts.c
		-P "${PROJECT_SOURCE_DIR}/cmake/embed.cmake"
	DEPENDS tests/math_functions.h tests/math.cu cmake/embed.cmake
	COMMENT "Embedding the kernel of gpu_math" VERBATIM)
add_executable(gpu_math tests/gpu_math.c "${PROJECT_BINARY_DIR}/math_texts.c")
evenkeel_program(gpu_math tests)
target_link_libraries(gpu_math PRIVATE evenkeel_test_support evenkeel_test_math evenkeel_static m Threads::Threads
	${CMAKE_DL_LIBS})
add_dependencies(gpu_math standin_cuda standin_nvrtc)
add_test(NAME cuda_math COMMAND gpu_math ${EVENKEEL_TEST_MODE} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(cuda_math PROPERTIES ENVIRONMENT
	"${standin_environment};EVENKEEL_CACHE=${PROJECT_BINARY_DIR}/standin-cache")
