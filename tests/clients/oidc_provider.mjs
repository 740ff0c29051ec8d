// An OpenID Connect provider: node oidc_provider.mjs LIBRARY ISSUER REDIRECT_URI SECRET PEOPLE
// PEOPLE is a file, read at each sign-in: claims by login.
import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const [library, issuer, redirectUri, secret, people] = process.argv.slice(2)
const { default: Provider } = await import(pathToFileURL(library))

const provider = new Provider(issuer, {
  clients: [{ client_id: 'entrepot', client_secret: secret, redirect_uris: [redirectUri] }],
  scopes: ['openid', 'email', 'groups'],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
  cookies: { keys: ['of the test'] },
  pkce: { required: () => true },
  async findAccount(_context, id) {
    const claims = JSON.parse(readFileSync(people, 'utf8'))[id]
    return claims && { accountId: id, claims: async () => ({ sub: id, ...claims }) }
  },
})
provider.listen(Number(new URL(issuer).port), '127.0.0.1')
