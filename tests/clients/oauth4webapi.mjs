// Signs a program in and out, and a person in: node oauth4webapi.mjs ISSUER KEY SECRET CODE VERIFIER
import { pathToFileURL } from 'node:url'

const [library, issuer, key, secret, code, verifier] = process.argv.slice(2)
const oauth = await import(pathToFileURL(library))
const insecure = { [oauth.allowInsecureRequests]: true }

const found = await oauth.discoveryRequest(new URL(issuer), { algorithm: 'oauth2', ...insecure })
const server = await oauth.processDiscoveryResponse(new URL(issuer), found)

async function who(token) {
  const headers = { authorization: `Bearer ${token}` }
  return await fetch(`${issuer}/v1/whoami`, { headers })
}

const program = { client_id: key }
for (const method of [oauth.ClientSecretBasic(secret), oauth.ClientSecretPost(secret)]) {
  const asked = { duration_seconds: '99999' }
  const answer = await oauth.clientCredentialsGrantRequest(server, program, method, asked, insecure)
  const made = await oauth.processClientCredentialsResponse(server, program, answer)
  console.log('program', made.expires_in, (await who(made.access_token)).status)
  const ended = await oauth.revocationRequest(server, program, method, made.access_token, insecure)
  await oauth.processRevocationResponse(ended)
  console.log('revoked', (await who(made.access_token)).status)
}

for (const method of [oauth.ClientSecretBasic('we+ird/se%cret=='), oauth.ClientSecretPost('x')]) {
  const answer = await oauth.clientCredentialsGrantRequest(server, program, method, {}, insecure)
  try {
    await oauth.processClientCredentialsResponse(server, program, answer)
  } catch (error) {
    console.log('refused', error.status ?? error.response?.status, error.error ?? error.code)
  }
}

const cli = { client_id: 'cli' }
const shown = oauth.validateAuthResponse(server, cli, new URLSearchParams({ code }), oauth.expectNoState)
const redirect = 'urn:ietf:wg:oauth:2.0:oob'
const first = await oauth.authorizationCodeGrantRequest(
  server, cli, oauth.None(), shown, redirect, verifier, insecure,
)
const signedIn = await oauth.processAuthorizationCodeResponse(server, cli, first)
const second = await oauth.refreshTokenGrantRequest(
  server, cli, oauth.None(), signedIn.refresh_token, insecure,
)
const refreshed = await oauth.processRefreshTokenResponse(server, cli, second)
console.log('person', (await (await who(refreshed.access_token)).json()).kind)
