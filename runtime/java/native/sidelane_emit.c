/* SPDX-License-Identifier: Apache-2.0
 *
 * The native methods of dev.sidelane.Requests.
 */
#include <jni.h>

#include "sidelane.h"

JNIEXPORT void JNICALL Java_dev_sidelane_Requests_received(JNIEnv *env, jclass requests, jlong id)
{
	(void)env;
	(void)requests;
	sidelane_request_receive((uint64_t)id);
}

JNIEXPORT void JNICALL Java_dev_sidelane_Requests_started(JNIEnv *env, jclass requests, jlong id)
{
	(void)env;
	(void)requests;
	sidelane_request_start((uint64_t)id);
}

JNIEXPORT void JNICALL Java_dev_sidelane_Requests_finished(JNIEnv *env, jclass requests, jlong id)
{
	(void)env;
	(void)requests;
	sidelane_request_finish((uint64_t)id);
}
